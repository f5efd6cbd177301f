# The clock: the body is new each time, in Unix milliseconds.
run lambda { |env|
  return [404, { "content-type" => "text/plain" }, ["Not Found"]] unless env["PATH_INFO"] == "/"

  now = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
  [200, { "content-type" => "text/plain" }, ["Hello World #{now}"]]
}
