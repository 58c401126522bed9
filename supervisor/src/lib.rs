//! OTP-style supervision for ractor actors.
