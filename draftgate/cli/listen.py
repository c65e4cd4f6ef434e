"""HOST:PORT as an option has it. Knows no subcommand."""


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return host and port; None if `text` is no HOST:PORT. Without a host it is loopback."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        return None
    return host.strip("[]") or "127.0.0.1", int(port)
