# A host in a container: `docker build -t scrollback .`, then
# `docker run -p 127.0.0.1:7878:7878 -v scrollback:/data -e SCROLLBACK_TOKEN=… scrollback`.

FROM rust:1.95-slim-bookworm AS build
# A C compiler and make, for the allocator.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin scrollback && strip target/release/scrollback

FROM debian:bookworm-slim
# Certificates for issuers and endpoints; curl for the health check.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data scrollback \
    && install -d -o scrollback -m 0700 /data \
    && install -d -o scrollback /projects
COPY --from=build /src/target/release/scrollback /usr/local/bin/scrollback
USER scrollback
VOLUME /data
EXPOSE 7878
ENV SCROLLBACK_LISTEN=0.0.0.0:7878 \
    SCROLLBACK_DATA=/data/log \
    SCROLLBACK_ALLOWED_DIRECTORIES=/projects \
    SCROLLBACK_DEFAULT_DIRECTORY=/projects
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["curl", "--fail", "--silent", "--show-error", "http://127.0.0.1:7878/readyz"]
ENTRYPOINT ["/usr/local/bin/scrollback"]
CMD ["serve"]
