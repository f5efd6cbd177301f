defmodule Server do
  @moduledoc "Cowboy's listener, with hello on /."

  def start do
    {:ok, _} = Application.ensure_all_started(:cowboy)

    # A persistent term is not copied to the process of each connection.
    dispatch = :cowboy_router.compile([{:_, [{"/", Server.Hello, []}]}])
    :persistent_term.put(__MODULE__, dispatch)

    port = String.to_integer(System.get_env("PORT", "8080"))
    {:ok, ip} = :inet.parse_address(String.to_charlist(System.get_env("HOST", "127.0.0.1")))
    transport = %{max_connections: :infinity, socket_opts: [ip: ip, port: port, backlog: 4096]}

    protocol = %{
      env: %{dispatch: {:persistent_term, __MODULE__}},
      # By default a connection is closed after 1,000 requests, or when it is idle for 5 s.
      max_keepalive: 1_000_000_000,
      request_timeout: 65_000,
      # By default an HTTP/2 connection is closed after 10,000 frames in 10 s.
      max_received_frame_rate: {1_000_000_000, 10_000}
    }

    {:ok, _} = :cowboy.start_clear(__MODULE__, transport, protocol)
  end
end

defmodule Server.Hello do
  @moduledoc "Responds with the greeting."
  @behaviour :cowboy_handler

  @headers %{"content-type" => "text/plain"}

  @impl true
  def init(%{method: method} = req, state) when method in ["GET", "HEAD"] do
    {:ok, :cowboy_req.reply(200, @headers, "Hello, World!", req), state}
  end

  def init(req, state), do: {:ok, :cowboy_req.reply(405, %{"allow" => "GET, HEAD"}, req), state}
end
