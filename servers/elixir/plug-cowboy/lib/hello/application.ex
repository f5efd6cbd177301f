defmodule Hello.Application do
  @moduledoc "Starts Cowboy with the router as its plug."
  use Application

  @impl true
  def start(_type, _args) do
    {:ok, ip} = :inet.parse_address(String.to_charlist(System.get_env("HOST", "127.0.0.1")))

    options = [
      ip: ip,
      port: String.to_integer(System.get_env("PORT", "8080")),
      transport_options: [max_connections: :infinity, socket_opts: [backlog: 4096]],
      # By default a connection is closed after 1,000 requests, or when it is idle for 5 s.
      protocol_options: [max_keepalive: 1_000_000_000, request_timeout: 65_000]
    ]

    children = [{Plug.Cowboy, scheme: :http, plug: Hello.Router, options: options}]
    Supervisor.start_link(children, strategy: :one_for_one, name: Hello.Supervisor)
  end
end
