# Sinatra with pg: statements that each connection of the pool prepares once, and ERB for pages.
require "connection_pool"
require "pg"
require "sinatra/base"

# Each worker has its share of the connections.
SIZE = [Integer(ENV.fetch("POOL_SIZE", "16")) / Integer(ENV.fetch("CPUS", "1")), 1].max

POOL = ConnectionPool.new(size: SIZE) do
  connection = PG.connect(ENV.fetch("DATABASE_URL"))
  connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
  connection.prepare("row", "SELECT id, number FROM world WHERE id = $1")
  connection.prepare("fortunes", "SELECT id, message FROM fortune")
  connection
end

class Server < Sinatra::Base
  # All rows by id.
  set :kept, POOL.with { |db| db.exec("SELECT id, number FROM world").to_h { |row| [row["id"], row] } }

  helpers do
    def h(text) = Rack::Utils.escape_html(text)

    def numbers(name) = params[name].split(",").map { |number| Integer(number) }

    def json(value)
      content_type :json
      JSON.generate(value)
    end

    def row(db, id) = db.exec_prepared("row", [id])[0]
  end

  get "/json" do
    json(message: "Hello, #{params["name"]}!")
  end

  get "/db" do
    json(POOL.with { |db| row(db, Integer(params["id"])) })
  end

  get "/queries" do
    json(POOL.with { |db| numbers("ids").map { |id| row(db, id) } })
  end

  get "/fortunes" do
    @fortunes = POOL.with { |db| db.exec_prepared("fortunes").to_a }
    @fortunes << { "id" => 0, "message" => "Brought by the request: #{params["text"]}" }
    @fortunes.sort_by! { |fortune| fortune["message"] }
    erb :fortunes
  end

  get "/cached" do
    json(settings.kept.fetch_values(*numbers("ids")))
  end

  get "/delay" do
    ms = Integer(params["ms"])
    sleep(ms / 1000.0)
    json(ms: ms)
  end
end

run Server
