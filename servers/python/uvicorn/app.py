"""An application for uvicorn, with nothing between it and ASGI."""


def answer(status, body):
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )


HELLO = answer(200, b"Hello, World!")
NOT_FOUND = answer(404, b"Not Found")
NOT_ALLOWED = answer(405, b"Method Not Allowed")


async def app(scope, receive, send):
    if scope["path"] != "/":
        head, body = NOT_FOUND
    elif scope["method"] in ("GET", "HEAD"):
        head, body = HELLO
    else:
        head, body = NOT_ALLOWED
    await send(head)
    await send(body)
