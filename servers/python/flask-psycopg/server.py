"""Flask with psycopg: a pool for each process, and a thread for each request."""

import os
import time
import zlib
from functools import cache

from flask import Flask, jsonify, render_template, request
from psycopg_pool import ConnectionPool

# Each worker has its share of the connections.
SIZE = max(1, int(os.environ.get("POOL_SIZE", "10")) // int(os.environ.get("CPUS", "1")))

app = Flask(__name__)
app.json.sort_keys = False
pool = ConnectionPool(
    os.environ["DATABASE_URL"],
    # A statement outside of a transaction is one round trip.
    kwargs={"autocommit": True},
    min_size=SIZE,
    max_size=SIZE,
    open=True,
)


def numbers(name):
    return [int(number) for number in request.args[name].split(",")]


def row(connection, id):
    sql = "SELECT number FROM world WHERE id = %s"
    return {"id": id, "number": connection.execute(sql, (id,), prepare=True).fetchone()[0]}


@cache
def worlds():
    with pool.connection() as connection:
        rows = connection.execute("SELECT id, number FROM world").fetchall()
    return {id: {"id": id, "number": number} for id, number in rows}


@app.get("/json")
def json():
    return jsonify(message=f"Hello, {request.args['name']}!")


@app.get("/cached")
def cached():
    return jsonify([worlds()[id] for id in numbers("ids")])


@app.post("/upload")
def upload():
    size, crc32 = 0, 0
    while chunk := request.stream.read(65536):
        size += len(chunk)
        crc32 = zlib.crc32(chunk, crc32)
    return jsonify(bytes=size, crc32=f"{crc32:08x}")


@app.get("/delay")
def delay():
    ms = int(request.args["ms"])
    time.sleep(ms / 1000)
    return jsonify(ms=ms)


@app.get("/db")
def db():
    with pool.connection() as connection:
        return jsonify(row(connection, int(request.args["id"])))


@app.get("/queries")
def queries():
    with pool.connection() as connection:
        return jsonify([row(connection, id) for id in numbers("ids")])


@app.post("/updates")
def updates():
    with pool.connection() as connection:
        worlds = [row(connection, id) for id in numbers("ids")]
        for world, number in zip(worlds, numbers("numbers")):
            world["number"] = number
        with connection.transaction(), connection.cursor() as cursor:
            sql = "UPDATE world SET number = %(number)s WHERE id = %(id)s"
            cursor.executemany(sql, worlds)
    return jsonify(worlds)


@app.get("/fortunes")
def fortunes():
    with pool.connection() as connection:
        rows = connection.execute("SELECT id, message FROM fortune", prepare=True).fetchall()
    rows.append((0, "Brought by the request: " + request.args["text"]))
    rows.sort(key=lambda row: row[1])
    return render_template("fortunes.html", fortunes=rows)
