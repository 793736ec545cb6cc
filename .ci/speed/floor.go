package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The files of a floor: answers of a server.
const (
	objectFile = "object.json"
	listFile   = "list.json"
	pageFile   = "page.json"
)

// floor is the least that a server in Go must do: TLS, HTTP/2, and bytes that are ready. It answers each request with the same
// bytes, and tells each watch of each write.
type floor struct {
	object, list, page, event []byte

	mu     sync.Mutex
	events int           // so far
	more   chan struct{} // closed when there is another one
}

func readFloor(dir string) (*floor, error) {
	f := &floor{more: make(chan struct{})}
	for name, body := range map[string]*[]byte{objectFile: &f.object, listFile: &f.list, pageFile: &f.page} {
		var err error
		if *body, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	f.event = fmt.Appendf(nil, `{"type":"MODIFIED","object":%s}`+"\n", bytes.TrimSpace(f.object))
	return f, nil
}

// state returns the number of events, and a channel that is closed when there are more.
func (f *floor) state() (int, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events, f.more
}

// ServeHTTP implements http.Handler.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := f.object
	switch {
	case r.Method != http.MethodGet:
		_, _ = io.Copy(io.Discard, r.Body)
		f.mu.Lock()
		f.events++
		close(f.more)
		f.more = make(chan struct{})
		f.mu.Unlock()
	case strings.Contains(r.URL.RawQuery, "watch="):
		f.watch(w, r)
		return
	case r.URL.Path == collection && strings.Contains(r.URL.RawQuery, "limit="):
		body = f.page
	case r.URL.Path == collection:
		body = f.list
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func (f *floor) watch(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", jsonType)
	sent, more := f.state()
	for control.Flush() == nil {
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
		var now int
		for now, more = f.state(); sent < now; sent++ {
			if _, err := w.Write(f.event); err != nil {
				return
			}
		}
	}
}

// serveFloor serves answers of a folder until the context ends.
func serveFloor(ctx context.Context, dir, address string) error {
	f, err := readFloor(dir)
	if err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ServeTLS(listener, "", ""); ctx.Err() == nil {
		return err
	}
	return nil
}

// selfSigned returns a certificate for 127.0.0.1.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: floorName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
