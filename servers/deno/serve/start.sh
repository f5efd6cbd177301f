deno=node_modules/deno/deno
if [ -n "$TLS_CERT" ]; then
  exec $deno run --no-config --no-remote --allow-net "--allow-read=$TLS_CERT,$TLS_KEY" \
    tls.js "$HOST" "$PORT" "$TLS_CERT" "$TLS_KEY"
fi
exec $deno serve --no-config --no-remote --host "$HOST" --port "$PORT" server.js
