"""FastAPI with asyncpg: a pool that is opened with the application, and Jinja for pages."""

import asyncio
import os
import zlib
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.templating import Jinja2Templates

# Each worker has its share of the connections.
POOL = max(1, int(os.environ.get("POOL_SIZE", "10")) // int(os.environ.get("CPUS", "1")))


@asynccontextmanager
async def lifespan(app):
    url = os.environ["DATABASE_URL"]
    async with asyncpg.create_pool(url, min_size=POOL, max_size=POOL) as app.state.pool:
        rows = await app.state.pool.fetch("SELECT id, number FROM world")
        app.state.cache = {row["id"]: dict(row) for row in rows}
        yield


app = FastAPI(lifespan=lifespan, openapi_url=None)
templates = Jinja2Templates(directory="templates")


def numbers(text):
    return [int(number) for number in text.split(",")]


async def row(connection, id):
    number = await connection.fetchval("SELECT number FROM world WHERE id = $1", id)
    return {"id": id, "number": number}


@app.get("/json")
async def json(name: str):
    return JSONResponse({"message": f"Hello, {name}!"})


@app.get("/cached")
async def cached(request: Request, ids: str):
    return JSONResponse([request.app.state.cache[id] for id in numbers(ids)])


@app.post("/upload")
async def upload(request: Request):
    size, crc32 = 0, 0
    async for chunk in request.stream():
        size += len(chunk)
        crc32 = zlib.crc32(chunk, crc32)
    return JSONResponse({"bytes": size, "crc32": f"{crc32:08x}"})


@app.get("/delay")
async def delay(ms: int):
    await asyncio.sleep(ms / 1000)
    return JSONResponse({"ms": ms})


@app.get("/db")
async def db(request: Request, id: int):
    async with request.app.state.pool.acquire() as connection:
        return JSONResponse(await row(connection, id))


@app.get("/queries")
async def queries(request: Request, ids: str):
    async with request.app.state.pool.acquire() as connection:
        return JSONResponse([await row(connection, id) for id in numbers(ids)])


@app.post("/updates")
async def updates(request: Request, ids: str):
    changed = numbers(request.query_params["numbers"])
    async with request.app.state.pool.acquire() as connection:
        worlds = [await row(connection, id) for id in numbers(ids)]
        for world, number in zip(worlds, changed):
            world["number"] = number
        pairs = [(world["id"], world["number"]) for world in worlds]
        await connection.executemany("UPDATE world SET number = $2 WHERE id = $1", pairs)
    return JSONResponse(worlds)


@app.get("/fortunes")
async def fortunes(request: Request, text: str):
    async with request.app.state.pool.acquire() as connection:
        rows = await connection.fetch("SELECT id, message FROM fortune")
    rows = [(row["id"], row["message"]) for row in rows]
    rows.append((0, f"Brought by the request: {text}"))
    rows.sort(key=lambda row: row[1])
    return templates.TemplateResponse(request, "fortunes.html", {"fortunes": rows})
