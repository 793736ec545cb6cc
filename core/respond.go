package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/core/wire"
	"stele.dev/stele/eventlog/logpb"
)

// format is the form in which the answer is wanted, if objects of the kind have it.
func (r *Request) format() (negotiate.Format, error) {
	if r.wanted == nil {
		f, err := negotiate.Object(r.http, r.kind != nil && typed.Has(r.seen().GroupVersionKind()))
		if err != nil {
			return f, err
		}
		r.wanted = &f
	}
	return *r.wanted, nil
}

// answerObject answers with one object, given as its JSON in any version.
func (p *Pipeline) answerObject(r *Request, code int, object []byte) error {
	f, err := r.format()
	if err != nil {
		return err
	}
	if object, err = r.view(object); err != nil {
		return err
	}
	switch f.As {
	case negotiate.Table:
		o, err := tableOptions(r, f)
		if err != nil {
			return err
		}
		list := metav1.ListMeta{ResourceVersion: gjson.GetBytes(object, "metadata.resourceVersion").String()}
		if object, err = p.printer(r).Table(o, list, [][]byte{object}); err != nil {
			return err
		}
	case negotiate.Metadata:
		if f.List {
			return notAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", r.goType(""))
		}
		object = table.Metadata(object, f.AsVersion)
	}
	return p.writeBody(r, f, code, object)
}

// notAcceptable is the answer to who wants an object in a form that it has not.
func notAcceptable(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: fmt.Sprintf(format, args...),
	}}
}

// goType is what upstream's texts call the kind, or a list of it.
func (r *Request) goType(list string) string {
	if !r.kind.Kind.Builtin {
		return "*unstructured.Unstructured" + list
	}
	group, _, _ := strings.Cut(r.kind.Kind.Group, ".")
	return "*" + cmp.Or(group, "core") + "." + r.kind.Kind.Kind.Kind + list
}

// tableOptions reads how the table is wanted.
func tableOptions(r *Request, f negotiate.Format) (table.Options, error) {
	o := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(r.http.URL.Query().Get("includeObject"))}
	if errs := metav1validation.ValidateTableOptions(&o); len(errs) > 0 {
		return table.Options{}, apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
	return table.Options{Version: f.AsVersion, Include: o.IncludeObject, Now: r.now()}, nil
}

// now is what ages are relative to.
func (r *Request) now() time.Time {
	if r.asOf.IsZero() {
		return time.Now()
	}
	return r.asOf
}

// answerDryRun answers with what would have come of the write.
func (p *Pipeline) answerDryRun(r *Request, w *write) error {
	if w.kind == logpb.Type_TYPE_DELETED && r.object == nil {
		return p.answerDeleted(r, r.old.Revision)
	}
	object := w.payload
	if w.after != nil {
		object = w.after
	}
	if r.old != nil {
		object = withRevision(object, r.old.Revision)
	}
	return p.answerObject(r, w.code, object)
}

// returnsDeleted has the kinds of which a delete answers with the object, as upstream's stores have it
// (ReturnDeletedObject).
var returnsDeleted = map[schema.GroupResource]bool{commit.Namespaces: true, {Resource: accountsResource}: true}

// answerDeleted answers to a delete that is done, at a revision.
func (p *Pipeline) answerDeleted(r *Request, revision uint64) error {
	if returnsDeleted[r.resource()] {
		return p.answerObject(r, http.StatusOK, withRevision(r.old.Payload(), revision))
	}
	f, err := r.format()
	if err != nil {
		return err
	}
	return p.writeJSON(r, f, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: r.key.Name, Group: r.key.Group, Kind: r.key.Resource, UID: types.UID(r.old.UID),
		},
	})
}

// answerRaw answers with what is JSON whatever the client wants, as people read it.
func (p *Pipeline) answerRaw(r *Request, code int, content any) error {
	body, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return p.send(r, negotiate.JSON, code, body)
}

// writeBody sends the whole answer, given as JSON.
func (p *Pipeline) writeBody(r *Request, f negotiate.Format, code int, body []byte) error {
	if f.Pretty {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, body, "", "  "); err != nil {
			return err
		}
		return p.send(r, f.ContentType(), code, pretty.Bytes())
	}
	if f.MediaType == negotiate.JSON {
		return p.send(r, f.ContentType(), code, body, lineEnd)
	}
	body, err := wire.Encode(f.MediaType, body)
	if err != nil {
		return err
	}
	return p.send(r, f.ContentType(), code, body)
}

var lineEnd = []byte{'\n'}

// send sends the whole answer.
func (p *Pipeline) send(r *Request, contentType string, code int, parts ...[]byte) error {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	to := p.open(r, contentType, code, length)
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
func (p *Pipeline) open(r *Request, contentType string, code, length int) io.WriteCloser {
	p.writeHeader(r, contentType)
	h := r.w.Header()
	compressed := (length < 0 || length > negotiate.CompressFrom) && negotiate.Gzip(r.http)
	if compressed {
		h.Set("Content-Encoding", "gzip")
		if h.Get("Vary") == "" {
			h.Set("Vary", "Accept-Encoding")
		}
	} else if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	r.w.WriteHeader(code)
	r.sent = true
	switch {
	case r.http.Method == http.MethodHead:
		return unwritten{io.Discard}
	case compressed:
		z := compressors.Get().(*gzip.Writer)
		z.Reset(r.w)
		return &compressor{z}
	}
	return unwritten{r.w}
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
func (p *Pipeline) writeHeader(r *Request, contentType string) {
	h := r.w.Header()
	h.Set("Content-Type", contentType)
	for _, text := range r.warnings {
		if value, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			h.Add("Warning", value)
		}
	}
}

// stageHeader names the stage at which a request failed.
const stageHeader = "X-Stele-Stage"

// fail answers with the Status of an error, unless the answer has begun.
func (p *Pipeline) fail(r *Request, err error) {
	s, internal := status.From(err)
	if internal {
		p.logger.Error("a request failed", "auditID", r.auditID, "stage", r.stage, "method", r.http.Method, "path", r.http.URL.Path, "error", err)
	}
	if errors.Is(err, commit.ErrUndecided) {
		s.Message += fmt.Sprintf(" (audit id %s)", r.auditID)
	}
	if r.w.code != 0 {
		return
	}
	h := r.w.Header()
	h.Del("Content-Length")
	h.Del("ETag")
	h.Set(stageHeader, r.stage)
	if s.Code == http.StatusForbidden && (r.stage == "impersonation" || r.stage == "authorization") {
		h.Set("X-Content-Type-Options", "nosniff") // there, as upstream
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	if s.Code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="stele"`)
	}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	// Errors do not depend on what becomes of objects, and are said whatever the client accepts.
	f, notAccepted := negotiate.Plain(r.http)
	if notAccepted == nil {
		notAccepted = p.writeJSON(r, f, int(s.Code), s)
	}
	if notAccepted != nil {
		_ = p.answerRaw(r, int(s.Code), s)
	}
}

// queryRevision reads the resourceVersion of a read. Where upstream's cache finds a bad one
// it says 500; this is what its storage says.
func queryRevision(v string) (uint64, error) {
	n, err := storage.APIObjectVersioner{}.ParseResourceVersion(v)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	return n, nil
}

// parseRevision reads the resourceVersion of an object.
func parseRevision(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ObjectMeta"}, "", field.ErrorList{
			field.Invalid(field.NewPath("resourceVersion"), v, err.Error())})
	}
	return n, nil
}
