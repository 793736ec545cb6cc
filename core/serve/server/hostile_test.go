package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/serve/server"
)

// A request whose end two programs could find at different places is refused, and the connection ends: so nothing behind a proxy
// reads a second request where the proxy saw a body.
func TestAmbiguousRequestsEndTheConnection(t *testing.T) {
	own := authority(t)
	certificate, err := own.ServerCertificate(t.TempDir(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.URL.Path)
	})
	s := server.New(handler, certificate.Get, nil, nil, slog.New(slog.DiscardHandler))
	go s.ServeTLS(listener, "", "")
	defer s.Close()
	const second = "GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, header := range map[string]string{
		"two lengths":               "Content-Length: 0\r\nContent-Length: 5\r\n",
		"a list of lengths":         "Content-Length: 0, 5\r\n",
		"a negative length":         "Content-Length: -1\r\n",
		"a length with a sign":      "Content-Length: +0\r\n",
		"a length in hexadecimal":   "Content-Length: 0x0\r\n",
		"chunks twice":              "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"chunks of chunks":          "Transfer-Encoding: chunked, chunked\r\n",
		"chunks that are no chunks": "Transfer-Encoding: xchunked\r\n",
		"chunks or identity":        "Transfer-Encoding: identity, chunked\r\n",
		"chunks with a tab":         "Transfer-Encoding:\tchunked\x0b\r\n",
		"a space before the colon":  "Content-Length : 5\r\n",
		"a space before the name":   " Content-Length: 5\r\n",
		"a zero byte":               "X: a\x00b\r\n",
		"two hosts":                 "Host: y\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			seen = nil
			mu.Unlock()
			conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: own.Pool(), NextProtos: []string{"http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /first HTTP/1.1\r\nHost: x\r\n%s\r\n0\r\n\r\n%s", header, second)
			reader := bufio.NewReader(conn)
			for {
				answer, err := http.ReadResponse(reader, nil)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode < 400 && !answer.Close {
					t.Errorf("%s, and the connection goes on", answer.Status)
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(strings.Join(seen, ","), "second") {
				t.Errorf("the handler saw %q", seen)
			}
		})
	}
}
