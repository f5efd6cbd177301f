from django.db import models


class World(models.Model):
    id = models.IntegerField(primary_key=True)
    number = models.IntegerField()

    class Meta:
        managed = False
        db_table = "world"


class Fortune(models.Model):
    id = models.IntegerField(primary_key=True)
    message = models.TextField()

    class Meta:
        managed = False
        db_table = "fortune"
