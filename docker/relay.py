# SPDX-License-Identifier: MIT
"""Hands bytes on: relay.py PORT HOST PORT. The way in to a server whose networks are all closed."""

import asyncio
import contextlib
import sys

PIECE = 1 << 16


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side has ended, which the other is then told."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def main(port: int, to_host: str, to_port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                there, back = await asyncio.open_connection(to_host, to_port)
            except OSError as error:
                print(f"{to_host}:{to_port}: {error}", file=sys.stderr, flush=True)
                return
            with contextlib.closing(back):
                await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(serve, "0.0.0.0", port)
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
