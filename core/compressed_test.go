package core_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// Long answers of discovery are compressed for who takes that; short ones are not.
func TestDiscoveryIsCompressed(t *testing.T) {
	var categories strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&categories, "%q, ", fmt.Sprintf("category-of-widgets-%d", i))
	}
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `names: {kind: "Widget",`, `names: {kind: "Widget", categories: [`+categories.String()+`],`, 1), nil))

	plain := p.Must(t, 200, "GET", "/apis/example.com/v1", "")
	compressed := p.Must(t, 200, "GET", "/apis/example.com/v1", "", "Accept-Encoding", "gzip")
	if encoding := compressed.Header.Get("Content-Encoding"); encoding != "gzip" || len(compressed.Body) > len(plain.Body)/2 {
		t.Fatalf("%q, %d bytes of %d", encoding, len(compressed.Body), len(plain.Body))
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed.Body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || string(text) != strings.TrimSuffix(string(plain.Body), "\n") {
		t.Errorf("%v: %.100s", err, text)
	}
	if a := p.Must(t, 200, "GET", "/apis/example.com/v1", "", "Accept-Encoding", "br"); a.Header.Get("Content-Encoding") != "" {
		t.Error("compressed for who does not take it")
	}
	if a := p.Must(t, 200, "GET", "/apis", "", "Accept-Encoding", "gzip"); a.Header.Get("Content-Encoding") != "" {
		t.Error("a short answer is compressed")
	}
}
