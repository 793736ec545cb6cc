package openapi

import (
	"bytes"
	"cmp"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/munnerz/goautoneg"
	"stele.dev/stele/core/call/negotiate"
)

// served is a document for clients. It is built once, and kept compressed: as JSON, and as Protocol Buffers after the
// first request for that. It is safe for concurrent use.
type served struct {
	toProto func(json []byte) ([]byte, error)

	mu       sync.Mutex
	content  func() any // nil after it was built; the result may be an error
	json     []byte
	proto    []byte
	etag     string // hash of the JSON, used for both formats
	modified time.Time
}

func newServed(content func() any, toProto func([]byte) ([]byte, error)) *served {
	return &served{content: content, toProto: toProto}
}

// made reports whether the document was built.
func (d *served) made() bool {
	if !d.mu.TryLock() {
		return false // it is being built
	}
	defer d.mu.Unlock()
	return d.content == nil
}

// reuse returns the document before, if it was built and is the same. If it was built and differs, it starts to build
// d, which will soon be requested.
func (d *served) reuse(before *served, same bool) *served {
	switch {
	case !before.made():
		return d
	case same:
		return before
	}
	go func() { _ = d.prepare() }() // the next request gets the error
	return d
}

// prepare builds the document, unless it was built.
func (d *served) prepare() error {
	_, err := d.body(false)
	return err
}

// body returns the document, compressed.
func (d *served) body(asProto bool) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.content != nil {
		content := d.content()
		if err, failed := content.(error); failed {
			return nil, err
		}
		text, err := marshal(content)
		if err != nil {
			return nil, err
		}
		d.json, d.etag, d.modified, d.content = compress(text), fmt.Sprintf("%X", sha512.Sum512(text)), time.Now(), nil
	}
	if !asProto {
		return d.json, nil
	}
	if d.proto == nil {
		text, err := decompress(d.json)
		if err != nil {
			return nil, err
		}
		encoded, err := d.toProto(text)
		if err != nil {
			return nil, err
		}
		d.proto = compress(encoded)
	}
	return d.proto, nil
}

// marshal skips the second pass that json.Marshal makes over the output of a MarshalJSON method.
func marshal(content any) ([]byte, error) {
	if m, ok := content.(json.Marshaler); ok {
		return m.MarshalJSON()
	}
	return json.Marshal(content)
}

// compressors are pooled, because each allocates much memory.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func compress(text []byte) []byte {
	var b bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&b)
	_, _ = z.Write(text) // a write to memory does not fail
	_ = z.Close()
	return bytes.Clone(b.Bytes())
}

func decompress(compressed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// mediaType is a format that clients can request, possibly by an old name.
type mediaType struct {
	subtype, returned string
	proto             bool
}

var (
	jsonOnly    = []mediaType{{"json", "application/json", false}}
	mediaTypes2 = []mediaType{
		{"json", "application/json", false},
		{"com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", true},
		{"com.github.proto-openapi.spec.v2.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", true},
	}
	mediaTypes3 = []mediaType{
		{"json", "application/json", false},
		{"com.github.proto-openapi.spec.v3@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", true},
		{"com.github.proto-openapi.spec.v3.v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", true},
	}
)

func negotiated(r *http.Request, offered []mediaType) (mediaType, bool) {
	accept := r.Header.Get("Accept")
	accept = cmp.Or(accept, "*/*")
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, m := range offered {
			if (clause.Type == "application" || clause.Type == "*") && (clause.SubType == m.subtype || clause.SubType == "*") {
				return m, true
			}
		}
	}
	return mediaType{}, false
}

// serve answers as kube-apiserver does. A request with a hash, below /openapi/v3, gets the document with that hash,
// which never changes, or a redirect to the current one.
func (d *served) serve(w http.ResponseWriter, r *http.Request, offered []mediaType, path string) {
	h := w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	m, ok := negotiated(r, offered)
	if !ok {
		http.Error(w, "406 this document has no such form", http.StatusNotAcceptable)
		return
	}
	body, err := d.body(m.proto)
	if err != nil {
		http.Error(w, "500 the document could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" && path != "" {
		if hash != d.etag {
			http.Redirect(w, r, urlOf(path, d.etag), http.StatusMovedPermanently)
			return
		}
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	h.Set("Content-Type", m.returned)
	h.Set("ETag", strconv.Quote(d.etag))
	if negotiate.Gzip(r) {
		h.Set("Content-Encoding", "gzip")
	} else if body, err = decompress(body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", d.modified, bytes.NewReader(body))
}
