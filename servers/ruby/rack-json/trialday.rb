# A one-page framework on top of Rack. A route is a method and a path. All bodies are JSON.
require "json"

class Trialday
  JSON_TYPE = "application/json"
  # A missing content type counts as JSON. Parameters may follow the type.
  ACCEPTED = %r{\A\s*application/json\s*(?:;|\z)}i
  REASONS = { 400 => "Bad Request", 404 => "Not Found", 406 => "Not Acceptable" }.freeze

  def initialize(&routes)
    @routes = { "GET" => {}, "POST" => {} }
    @routes["HEAD"] = @routes["GET"]
    instance_eval(&routes)
  end

  def get(path, &action) = @routes["GET"][path] = action
  def post(path, &action) = @routes["POST"][path] = action

  # Rack's protocol: takes an environment, and returns a status, headers and a body.
  def call(env)
    action = @routes.dig(env["REQUEST_METHOD"], env["PATH_INFO"])
    return failure(404) if action.nil?

    type = env["CONTENT_TYPE"]
    return failure(406) unless type.nil? || type.empty? || ACCEPTED.match?(type)
    return respond(200, action.call) unless env["REQUEST_METHOD"] == "POST"

    params = parse(env["rack.input"].read)
    params.is_a?(Hash) ? respond(200, action.call(params)) : failure(400)
  end

  private

  def parse(body)
    body.force_encoding(Encoding::UTF_8)
    JSON.parse(body) if body.valid_encoding?
  rescue JSON::ParserError
    nil
  end

  def failure(status) = respond(status, { error: REASONS.fetch(status) })

  def respond(status, document)
    body = JSON.generate(document)
    [status, { "content-type" => JSON_TYPE, "content-length" => body.bytesize.to_s }, [body]]
  end
end
