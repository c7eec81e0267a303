"""Host, Origin, token, security headers and errors as JSON."""

from vitkit.serve.middleware import HEADERS

from .client import TOKEN, Server, noise_png


def test_foreign_hosts_and_origins_are_rejected(server: Server) -> None:
    """DNS rebinding: another site points its own name at this server."""
    assert server.get("/v1/models", Host="rebound.example").code == "bad_host"
    assert server.get("/v1/models", Host=f"rebound.example:{server.port}").code == "bad_host"
    assert server.get("/v1/models", Host=f"localhost:{server.port}").status == 200
    own = f"127.0.0.1:{server.port}"
    assert server.get("/v1/models", Host=own, Origin=f"http://{own}").status == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{server.port}", "http://127.0.0.1:1", "http://["):
        assert server.get("/v1/models", Host=own, Origin=origin).code == "bad_origin", origin
    assert server.post("/v1/predict", noise_png(), Sec_Fetch_Site="cross-site").code == "bad_origin"


def test_every_response_carries_the_headers_that_protect_a_browser(server: Server) -> None:
    for path in ("/", "/page/app.js", "/v1/models", "/nothing"):
        headers = server.get(path).headers
        assert {name.lower() for name in HEADERS} <= headers.keys()
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_without_a_token_only_the_page_and_the_health_checks_are_available(strict: Server) -> None:
    for path in ("/v1/models", "/v1/samples/0", "/metrics", "/openapi.json"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer ü"}):
            response = strict.get(path, **headers)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer"), path
        assert strict.get(path, Authorization=f"Bearer {TOKEN}").status == 200
    assert [strict.get(path).status for path in ("/", "/page/app.js", "/healthz", "/readyz")] == [200] * 4
