"""What is told of errors of OpenSSL. Pure."""

from __future__ import annotations

import ssl


def reason_of(error: Exception) -> str:
    """The words of an error of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__
