#!/bin/sh
# A minimal MCP server. Each line of its input is a JSON message, and it answers each request with one line.
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  [ -n "$id" ] || continue
  case $line in
    *'"method":"initialize"'*)
      outcome='"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"tide","version":"1"}}' ;;
    *'"method":"tools/list"'*)
      outcome='"result":{"tools":[{"name":"high_water","description":"Says when high water is on a day of the week.","inputSchema":{"type":"object","properties":{"day":{"type":"string"}},"required":["day"]},"annotations":{"readOnlyHint":true}}]}' ;;
    *'"method":"tools/call"'*)
      outcome='"result":{"content":[{"type":"text","text":"High water is at 16:04."}]}' ;;
    *) outcome='"error":{"code":-32601,"message":"unknown method"}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$outcome"
done
