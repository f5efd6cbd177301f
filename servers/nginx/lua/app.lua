-- This file runs once, before the workers are forked. The workers inherit the three functions.
local cjson = require "cjson.safe"
cjson.decode_invalid_numbers(false)

local function answer(status, kind, body)
    ngx.status = status
    ngx.header.content_type = kind
    ngx.header.content_length = #body -- otherwise, the body would be chunked
    ngx.print(body)
end

local function answer_json(status, value)
    answer(status, "application/json", cjson.encode(value))
end

function refuse(status, why)
    answer_json(status, { error = why })
end

function hello()
    answer(200, "text/plain", "Hello, World!")
end

local function echo()
    ngx.req.read_body()
    local body = ngx.req.get_body_data()
    -- In Lua, an array is a table too. Only the first character tells objects from arrays.
    local params = body and body:find("^%s*{") and cjson.decode(body)
    if not params then
        return refuse(400, "Bad Request")
    end
    local name = params.name
    if name == nil then
        name = cjson.null
    end
    answer_json(200, { name = name })
end

function bla()
    local kind = ngx.var.content_type
    if kind and kind ~= "application/json" and kind:match("^[^;%s]*"):lower() ~= "application/json" then
        return refuse(406, "Not Acceptable")
    end
    local method = ngx.req.get_method()
    if method == "GET" or method == "HEAD" then
        answer_json(200, { results = { 1, 2, 3 } })
    elseif method == "POST" then
        echo()
    else
        refuse(405, "Method Not Allowed")
    end
end
