package core_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Long answers of discovery are compressed for who takes that; short ones are not.
func TestDiscoveryIsCompressed(t *testing.T) {
	var categories strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&categories, "%q, ", fmt.Sprintf("category-of-widgets-%d", i))
	}
	p := newPlane(t)
	p.must(t, 201, "POST", policiesPath, policyBody(t, strings.Replace(bundle, `names: {kind: "Widget",`, `names: {kind: "Widget", categories: [`+categories.String()+`],`, 1), nil))

	plain := p.must(t, 200, "GET", "/apis/example.com/v1", "")
	compressed := p.must(t, 200, "GET", "/apis/example.com/v1", "", "Accept-Encoding", "gzip")
	if encoding := compressed.header.Get("Content-Encoding"); encoding != "gzip" || len(compressed.body) > len(plain.body)/2 {
		t.Fatalf("%q, %d bytes of %d", encoding, len(compressed.body), len(plain.body))
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed.body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || string(text) != strings.TrimSuffix(string(plain.body), "\n") {
		t.Errorf("%v: %.100s", err, text)
	}
	if a := p.must(t, 200, "GET", "/apis/example.com/v1", "", "Accept-Encoding", "br"); a.header.Get("Content-Encoding") != "" {
		t.Error("compressed for who does not take it")
	}
	if a := p.must(t, 200, "GET", "/apis", "", "Accept-Encoding", "gzip"); a.header.Get("Content-Encoding") != "" {
		t.Error("a short answer is compressed")
	}
}
