# A Rack application inside H2O, on mruby with the JSON library that H2O includes.
TEXT = { "content-type" => "text/plain" }
TYPE = { "content-type" => "application/json" }

def answer(status, value)
  [status, TYPE, [JSON.generate(value)]]
end

def json?(env)
  kind = env["CONTENT_TYPE"]
  kind.nil? || kind == "application/json" || kind.split(";")[0].strip.downcase == "application/json"
end

def echo(env)
  body = env["rack.input"] ? env["rack.input"].read.to_s.strip : ""
  params = begin
    # This parser stops at the end of the object and ignores what follows.
    body[-1] == "}" ? JSON.parse(body) : nil
  rescue StandardError
    nil
  end
  return answer(400, { "error" => "Bad Request" }) unless params.is_a?(Hash)

  answer(200, { "name" => params["name"] })
end

def bla(env)
  return answer(406, { "error" => "Not Acceptable" }) unless json?(env)

  case env["REQUEST_METHOD"]
  when "GET", "HEAD" then answer(200, { "results" => [1, 2, 3] })
  when "POST" then echo(env)
  else answer(405, { "error" => "Method Not Allowed" })
  end
end

lambda do |env|
  case env["PATH_INFO"]
  when "/bla" then bla(env)
  when "/" then [200, TEXT, ["Hello, World!"]]
  else answer(404, { "error" => "Not Found" })
  end
end
