package call

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/core/wire"
)

func (c *Call) WriteJSON(f negotiate.Format, code int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.WriteBody(f, code, text)
}

// format is the form in which the answer is wanted, if objects of the kind have it.
func (c *Call) Format() (negotiate.Format, error) {
	if c.format == nil {
		f, err := negotiate.Object(c.HTTP, c.Kind != nil && typed.Has(c.Seen().GroupVersionKind()))
		if err != nil {
			return f, err
		}
		c.format = &f
	}
	return *c.format, nil
}

// goType is what upstream's texts call the kind, or a list of it.
func (c *Call) GoType(list string) string {
	if !c.Kind.Kind.Builtin {
		return "*unstructured.Unstructured" + list
	}
	group, _, _ := strings.Cut(c.Kind.Kind.Group, ".")
	return "*" + cmp.Or(group, "core") + "." + c.Kind.Kind.Kind.Kind + list
}

// tableOptions reads how the table is wanted.
func TableOptions(c *Call, f negotiate.Format) (table.Options, error) {
	o := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(c.HTTP.URL.Query().Get("includeObject"))}
	if errs := metav1validation.ValidateTableOptions(&o); len(errs) > 0 {
		return table.Options{}, status.BadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
	return table.Options{Version: f.AsVersion, Include: o.IncludeObject, Now: c.Now()}, nil
}

// now is what ages are relative to.
func (c *Call) Now() time.Time {
	if c.Past.AsOf.IsZero() {
		return time.Now()
	}
	return c.Past.AsOf
}

// answerRaw answers with what is JSON whatever the client wants, as people read it.
func (c *Call) WriteRaw(code int, content any) error {
	body, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return c.Send(negotiate.JSON, code, body)
}

// writeBody sends the whole answer, given as JSON.
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

// send sends the whole answer.
func (c *Call) Send(contentType string, code int, parts ...[]byte) error {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	to := c.Open(contentType, code, length)
	for _, part := range parts {
		if _, err := to.Write(part); err != nil {
			break // the client is gone
		}
	}
	_ = to.Close()
	return nil
}

// open sends the header of an answer of some length, and returns what takes its body. A long one is
// compressed for who asks for that. Where the length is negative all that is known is that it is long.
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
		return &compressor{z}
	}
	return unwritten{c.W}
}

// unwritten is a writer that has nothing to close.
type unwritten struct{ io.Writer }

func (unwritten) Close() error { return nil }

// compressor is a writer that goes back to where it came from.
type compressor struct{ *gzip.Writer }

func (c *compressor) Close() error {
	err := c.Writer.Close()
	c.Writer.Reset(nil)
	compressors.Put(c.Writer)
	return err
}

// compressors take much memory to begin with. What counts is that nobody waits for them.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // which is a level
	return z
}}

// writeHeader sets what all answers have.
func (c *Call) WriteHeader(contentType string) {
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	for _, text := range c.warnings {
		if value, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			h.Add("Warning", value)
		}
	}
}

// ResetFormat forgets the negotiated format, because the call may be about another kind now.
func (c *Call) ResetFormat() { c.format = nil }
