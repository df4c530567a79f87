// Its existence allows Go's declarations without a body.
