require_relative "trialday"

run Trialday.new {
  get("/bla") { { results: [1, 2, 3] } }
  post("/bla") { |params| { name: params["name"] } }
}
