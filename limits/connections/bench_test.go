package connections_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"log/slog"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/limits/connections"
)

// one is a listener with one connection.
type one struct{ net.Conn }

func (o one) Accept() (net.Conn, error) { return end{o.Conn, "192.0.2.1:1234"}, nil }
func (o one) Addr() net.Addr            { return address("server:443") }

// BenchmarkRequest measures what a guard adds to each request.
func BenchmarkRequest(b *testing.B) {
	client, serving := net.Pipe()
	defer client.Close()
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	g := connections.New(connections.Limits{}.WithDefaults(0))
	s := server.New(nothing, nil, nil, g, slog.New(slog.DiscardHandler))
	conn, err := g.Listener(one{serving}).Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for name, guarded := range map[string]bool{"guarded": true, "bare": false} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			handler := http.Handler(nothing)
			if guarded {
				ctx, handler = s.ConnContext(ctx, conn), s.Handler
			}
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
