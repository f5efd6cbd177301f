# A certificate adds two options.
exec venv/bin/granian --interface rsgi --host "${HOST:-127.0.0.1}" --port "$PORT" --workers "$CPUS" \
  --loop uvloop --http auto --log-level warning \
  ${TLS_CERT:+--ssl-certificate "$TLS_CERT" --ssl-keyfile "$TLS_KEY"} app:app
