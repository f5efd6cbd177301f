import time
import zlib
from functools import cache

from django.http import JsonResponse
from django.shortcuts import render

from .models import Fortune, World


def numbers(request, name):
    return [int(number) for number in request.GET[name].split(",")]


def row(world):
    return {"id": world.id, "number": world.number}


def rows(worlds):
    return JsonResponse([row(world) for world in worlds], safe=False)


@cache
def worlds():
    return {world.id: world for world in World.objects.all()}


def json(request):
    return JsonResponse({"message": f"Hello, {request.GET['name']}!"})


def upload(request):
    size, crc32 = 0, 0
    while chunk := request.read(65536):
        size += len(chunk)
        crc32 = zlib.crc32(chunk, crc32)
    return JsonResponse({"bytes": size, "crc32": f"{crc32:08x}"})


def delay(request):
    ms = int(request.GET["ms"])
    time.sleep(ms / 1000)
    return JsonResponse({"ms": ms})


def db(request):
    return JsonResponse(row(World.objects.get(id=request.GET["id"])))


def queries(request):
    return rows(World.objects.get(id=id) for id in numbers(request, "ids"))


def updates(request):
    worlds = [World.objects.get(id=id) for id in numbers(request, "ids")]
    for world, number in zip(worlds, numbers(request, "numbers")):
        world.number = number
    World.objects.bulk_update(worlds, ["number"])
    return rows(worlds)


def cached(request):
    return rows(worlds()[id] for id in numbers(request, "ids"))


def fortunes(request):
    fortunes = list(Fortune.objects.all())
    fortunes.append(Fortune(id=0, message="Brought by the request: " + request.GET["text"]))
    fortunes.sort(key=lambda fortune: fortune.message)
    return render(request, "fortunes.html", {"fortunes": fortunes})
