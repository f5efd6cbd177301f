defmodule Hello.MixProject do
  use Mix.Project

  def project do
    [app: :hello, version: "1.0.0", elixir: "~> 1.14", deps: [{:plug_cowboy, "~> 2.7"}]]
  end

  def application do
    [extra_applications: [:logger], mod: {Hello.Application, []}]
  end
end
