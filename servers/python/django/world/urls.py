from django.urls import path

from . import views

VIEWS = [
    views.json,
    views.db,
    views.queries,
    views.updates,
    views.cached,
    views.fortunes,
    views.upload,
    views.delay,
]
urlpatterns = [path(view.__name__, view) for view in VIEWS]
