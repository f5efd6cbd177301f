"""What a Django project needs for views with a database."""

import os

# Each worker has its share of the connections.
SIZE = max(1, int(os.environ.get("POOL_SIZE", "10")) // int(os.environ.get("CPUS", "1")))

SECRET_KEY = "nothing is signed"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "world.urls"
INSTALLED_APPS = ["world"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "NAME": os.environ["PGDATABASE"],
        "OPTIONS": {"pool": {"min_size": SIZE, "max_size": SIZE, "timeout": 30}},
    }
}
