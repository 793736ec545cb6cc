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

// answerDryRun answers with what would have come of the write.
func (p *Pipeline) answerDryRun(r *Request, w *edit.Write) error {
	if w.Type == logpb.Type_TYPE_DELETED && r.Object == nil {
		return p.answerDeleted(r, r.Old.Revision)
	}
	object := w.Payload
	if w.After != nil {
		object = w.After
	}
	if r.Old != nil {
		object = edit.WithRevision(object, r.Old.Revision)
	}
	return p.AnswerObject(r, w.Code, object)
}

// returnsDeleted has the kinds of which a delete answers with the object, as upstream's stores have it
// (ReturnDeletedObject).
var returnsDeleted = map[schema.GroupResource]bool{commit.Namespaces: true, {Resource: accountsResource}: true}

// answerDeleted answers to a delete that is done, at a revision.
func (p *Pipeline) answerDeleted(r *Request, revision uint64) error {
	if returnsDeleted[r.Resource()] {
		return p.AnswerObject(r, http.StatusOK, edit.WithRevision(r.Old.Payload(), revision))
	}
	f, err := r.Format()
	if err != nil {
		return err
	}
	return r.WriteJSON(f, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: r.Key.Name, Group: r.Key.Group, Kind: r.Key.Resource, UID: types.UID(r.Old.UID),
		},
	})
}

// stageHeader names the stage at which a request failed.
const stageHeader = "X-Stele-Stage"

// fail answers with the Status of an error, unless the answer has begun.
func (p *Pipeline) fail(r *Request, err error) {
	s, internal := status.From(err)
	if internal {
		p.logger.Error("a request failed", "auditID", r.AuditID, "stage", r.Stage, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "error", err)
	}
	if errors.Is(err, commit.ErrUndecided) {
		s.Message += fmt.Sprintf(" (audit id %s)", r.AuditID)
	}
	if r.W.Code != 0 {
		return
	}
	h := r.W.Header()
	h.Del("Content-Length")
	h.Del("ETag")
	h.Set(stageHeader, r.Stage)
	if s.Code == http.StatusForbidden && (r.Stage == "impersonation" || r.Stage == "authorization") {
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
	f, notAccepted := negotiate.Plain(r.HTTP)
	if notAccepted == nil {
		notAccepted = r.WriteJSON(f, int(s.Code), s)
	}
	if notAccepted != nil {
		_ = r.WriteRaw(int(s.Code), s)
	}
}

