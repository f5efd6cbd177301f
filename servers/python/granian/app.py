"""An application for granian, by its own interface, RSGI."""

TEXT = [("content-type", "text/plain")]


async def app(scope, proto):
    if scope.path != "/":
        proto.response_str(404, TEXT, "Not Found")
    elif scope.method in ("GET", "HEAD"):
        proto.response_str(200, TEXT, "Hello, World!")
    else:
        proto.response_str(405, TEXT, "Method Not Allowed")
