package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/eventlog/logpb"
)

// answerObject answers with one object, given as its JSON in any version.
func (p *Pipeline) answerObject(r *Request, code int, object []byte) error {
	f, err := negotiate.Object(r.http)
	if err != nil {
		return err
	}
	object = r.shown(object)
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
		object = table.Metadata(object, f.AsVersion)
	}
	return p.writeBody(r, f, code, object)
}

// tableOptions reads how the table is wanted.
func tableOptions(r *Request, f negotiate.Format) (table.Options, error) {
	o := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(r.http.URL.Query().Get("includeObject"))}
	if errs := metav1validation.ValidateTableOptions(&o); len(errs) > 0 {
		return table.Options{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "TableOptions"}, "", errs)
	}
	return table.Options{Version: f.AsVersion, Include: o.IncludeObject, Now: time.Now()}, nil
}

// answerDryRun answers with what would have come of the write.
func (p *Pipeline) answerDryRun(r *Request, w *write) error {
	if w.kind == logpb.Type_TYPE_DELETED && r.object == nil {
		return p.answerDeleted(r)
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

// answerDeleted answers to a delete that is done.
func (p *Pipeline) answerDeleted(r *Request) error {
	return p.answerJSON(r, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: r.key.Name, Group: r.key.Group, Kind: r.key.Resource, UID: types.UID(r.old.UID),
		},
	})
}

// answerJSON answers with something that is no served object.
func (p *Pipeline) answerJSON(r *Request, code int, content any) error {
	f, err := negotiate.Plain(r.http)
	if err != nil {
		f = negotiate.Format{MediaType: negotiate.JSON} // better that than no answer
	}
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, code, body)
}

// writeBody sends the whole answer, given as JSON.
func (p *Pipeline) writeBody(r *Request, f negotiate.Format, code int, body []byte) error {
	newline := true
	switch {
	case f.MediaType == negotiate.YAML:
		text, err := yaml.JSONToYAML(body)
		if err != nil {
			return err
		}
		body, newline = text, false
	case f.Pretty:
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, body, "", "  "); err != nil {
			return err
		}
		body = pretty.Bytes()
	}
	p.writeHeader(r, f.MediaType)
	length := len(body)
	if newline {
		length++
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(length))
	r.w.WriteHeader(code)
	r.sent = true
	if r.http.Method == http.MethodHead {
		return nil
	}
	if _, err := r.w.Write(body); err != nil {
		return nil // the client is gone
	}
	if newline {
		_, _ = r.w.Write(lineEnd)
	}
	return nil
}

var lineEnd = []byte{'\n'}

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
	h.Set(stageHeader, r.stage)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	if s.Code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="stele"`)
	}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	_ = p.answerJSON(r, int(s.Code), s)
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
