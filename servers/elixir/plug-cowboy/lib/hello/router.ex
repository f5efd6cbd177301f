defmodule Hello.Router do
  @moduledoc "Hello on /."
  use Plug.Router

  # HEAD is routed like GET.
  plug Plug.Head
  plug :match
  plug :dispatch

  get "/" do
    conn
    |> put_resp_content_type("text/plain")
    |> send_resp(200, "Hello, World!")
  end

  match _ do
    send_resp(conn, 404, "Not Found")
  end
end
