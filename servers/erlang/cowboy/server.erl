%% Cowboy: hello on /, and the JSON API on /bla.
-module(server).
-behaviour(cowboy_handler).
-export([start/0, init/2]).

-define(MAX_BODY, 1048576).

start() ->
    {ok, _} = application:ensure_all_started(cowboy),
    Routes = [
        {"/", ?MODULE, hello},
        {"/bla", ?MODULE, bla},
        {'_', ?MODULE, unknown}
    ],
    %% A persistent term is not copied to the process of each connection.
    persistent_term:put(?MODULE, cowboy_router:compile([{'_', Routes}])),
    Transport = #{max_connections => infinity},
    {ok, Ip} = inet:parse_address(os:getenv("HOST", "127.0.0.1")),
    Socket = [{ip, Ip}, {port, list_to_integer(os:getenv("PORT", "8080"))}, {backlog, 4096}],
    Protocol = #{
        env => #{dispatch => {persistent_term, ?MODULE}},
        %% By default a connection is closed after 1,000 requests, or when it is idle for 5 s.
        max_keepalive => 1000000000,
        request_timeout => 65000,
        %% By default an HTTP/2 connection is closed after 10,000 frames in 10 s.
        max_received_frame_rate => {1000000000, 10000}
    },
    {ok, _} = case os:getenv("TLS_CERT") of
        false ->
            cowboy:start_clear(?MODULE, Transport#{socket_opts => Socket}, Protocol);
        Certificate ->
            Files = [{certfile, Certificate}, {keyfile, os:getenv("TLS_KEY")}],
            cowboy:start_tls(?MODULE, Transport#{socket_opts => Files ++ Socket}, Protocol)
    end.

init(Req, State) ->
    {ok, answer(State, cowboy_req:method(Req), Req), State}.

answer(hello, Method, Req) when Method =:= <<"GET">>; Method =:= <<"HEAD">> ->
    cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>}, <<"Hello, World!">>, Req);
answer(bla, Method, Req) when Method =:= <<"GET">>; Method =:= <<"HEAD">> ->
    case is_json(Req) of
        true -> respond(200, #{results => [1, 2, 3]}, Req);
        false -> fail(406, <<"Not Acceptable">>, Req)
    end;
answer(bla, <<"POST">>, Req) ->
    case is_json(Req) of
        true -> name(cowboy_req:read_body(Req, #{length => ?MAX_BODY}));
        false -> fail(406, <<"Not Acceptable">>, Req)
    end;
answer(_, _, Req) ->
    fail(404, <<"Not Found">>, Req).

name({more, _, Req}) ->
    fail(413, <<"Content Too Large">>, Req);
name({ok, Body, Req}) ->
    try jiffy:decode(Body, [return_maps]) of
        #{} = Params -> respond(200, #{name => maps:get(<<"name">>, Params, null)}, Req);
        _ -> fail(400, <<"Bad Request">>, Req)
    catch
        _:_ -> fail(400, <<"Bad Request">>, Req)
    end.

%% A missing content type counts as JSON.
is_json(Req) ->
    case cowboy_req:header(<<"content-type">>, Req) of
        undefined -> true;
        <<"application/json">> -> true;
        Type -> [Media | _] = binary:split(Type, <<";">>), media(Media) =:= <<"application/json">>
    end.

media(Type) ->
    string:lowercase(string:trim(Type)).

fail(Status, Reason, Req) ->
    respond(Status, #{error => Reason}, Req).

respond(Status, Document, Req) ->
    Headers = #{<<"content-type">> => <<"application/json">>},
    cowboy_req:reply(Status, Headers, jiffy:encode(Document), Req).
