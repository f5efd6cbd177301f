# A certificate adds two options.
exec venv/bin/uvicorn --host "${HOST:-127.0.0.1}" --port "$PORT" --workers "$CPUS" \
  --loop uvloop --http httptools --lifespan off --no-access-log --log-level warning \
  ${TLS_CERT:+--ssl-certfile "$TLS_CERT" --ssl-keyfile "$TLS_KEY"} app:app
