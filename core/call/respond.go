package call

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/core/status"
)

// WriteJSON encodes v as JSON and answers with it in the format.
func (c *Call) WriteJSON(f negotiate.Format, code int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.WriteBody(f, code, text)
}

// Format returns the negotiated format of the answer.
func (c *Call) Format() (negotiate.Format, error) {
	if c.format == nil {
		f, err := negotiate.Object(c.HTTP, c.Kind != nil && gotypes.Has(c.Seen().GroupVersionKind()))
		if err != nil {
			return f, err
		}
		c.format = &f
	}
	return *c.format, nil
}

// GoType returns the Go type of the kind, which kube-apiserver's messages name. list is its suffix: "List" or "".
func (c *Call) GoType(list string) string {
	if !c.Kind.Kind.Builtin {
		return "*unstructured.Unstructured" + list
	}
	group, _, _ := strings.Cut(c.Kind.Kind.Group, ".")
	return "*" + cmp.Or(group, "core") + "." + c.Kind.Kind.Kind.Kind + list
}

// TableOptions reads the options of a table from the query.
func TableOptions(c *Call, f negotiate.Format) (table.Options, error) {
	o := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(c.HTTP.URL.Query().Get("includeObject"))}
	if errs := metav1validation.ValidateTableOptions(&o); len(errs) > 0 {
		return table.Options{}, status.BadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
	return table.Options{Version: f.AsVersion, Include: o.IncludeObject, Now: c.Now()}, nil
}

// Now returns the time to which ages are relative.
func (c *Call) Now() time.Time {
	if c.Past.AsOf.IsZero() {
		return time.Now()
	}
	return c.Past.AsOf
}

// WriteRaw answers with indented JSON, whatever format the client accepts.
func (c *Call) WriteRaw(code int, content any) error {
	body, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return c.Send(negotiate.JSON, code, body)
}

// WriteBody answers with a body, given as JSON, in the format.
func (c *Call) WriteBody(f negotiate.Format, code int, body []byte) error {
	if f.Pretty {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, body, "", "  "); err != nil {
			return err
		}
		return c.Send(f.ContentType(), code, pretty.Bytes())
	}
	if f.MediaType == negotiate.JSON {
		return c.Send(f.ContentType(), code, body, lineEnd)
	}
	body, err := wire.Encode(f.MediaType, body)
	if err != nil {
		return err
	}
	return c.Send(f.ContentType(), code, body)
}

var lineEnd = []byte{'\n'}

// Send sends the answer. Its body is the parts joined.
func (c *Call) Send(contentType string, code int, parts ...[]byte) error {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	to := c.Open(contentType, code, length)
	for _, part := range parts {
		if _, err := to.Write(part); err != nil {
			break // the client has disconnected
		}
	}
	_ = to.Close()
	return nil
}

// Open sends the header of an answer and returns the writer of its body. A long body is compressed if the client
// accepts that. A negative length means that the body is long, and its length unknown.
func (c *Call) Open(contentType string, code, length int) io.WriteCloser {
	c.WriteHeader(contentType)
	h := c.W.Header()
	compressed := (length < 0 || length > negotiate.CompressFrom) && negotiate.Gzip(c.HTTP)
	if compressed {
		h.Set("Content-Encoding", "gzip")
		if h.Get("Vary") == "" {
			h.Set("Vary", "Accept-Encoding")
		}
	} else if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	c.W.WriteHeader(code)
	c.Sent = true
	switch {
	case c.HTTP.Method == http.MethodHead:
		return unwritten{io.Discard}
	case compressed:
		z := compressors.Get().(*gzip.Writer)
		z.Reset(c.W)
		return c.keeping(&compressor{z}, contentType)
	}
	return c.keeping(unwritten{c.W}, contentType)
}

// unwritten is a writer whose Close does nothing.
type unwritten struct{ io.Writer }

func (unwritten) Close() error { return nil }

// compressor is a gzip writer that Close returns to the pool.
type compressor struct{ *gzip.Writer }

func (c *compressor) Close() error {
	err := c.Writer.Close()
	c.Writer.Reset(nil)
	compressors.Put(c.Writer)
	return err
}

// compressors are kept because each takes much memory. They use the fastest level, to keep latency low.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// WriteHeader sets the headers that all answers have: the content type and the warnings.
func (c *Call) WriteHeader(contentType string) {
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	for _, text := range c.warnings.texts {
		if value, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			h.Add("Warning", value)
		}
	}
}

// ResetFormat forgets the negotiated format. It is called before the call's kind is determined again.
func (c *Call) ResetFormat() { c.format = nil }
