package activation

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"

	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/policies"
)

// takesParts reports whether the request uploads parts of a policy.
func (w *push) takesParts() bool { return w.c.Info.Name == Parts }

// takeParts stores uploaded parts, for a later push that names them.
func (w *push) takeParts() error {
	f, err := negotiate.Untyped(w.c.HTTP)
	if err != nil {
		return err
	}
	raw, err := call.ReadLimited(w.c.HTTP)
	if err != nil {
		return err
	}
	var upload Upload
	strict, err := kjson.UnmarshalStrict(raw, &upload)
	if err = errors.Join(append([]error{err}, strict...)...); err != nil {
		return status.BadRequestf("%s in version %q cannot be handled as a %s: %v", UploadKind, Version, UploadKind, err)
	}
	if upload.Kind != UploadKind || upload.APIVersion != Group+"/"+Version {
		return status.BadRequestf("the object provided is unrecognized (must be of type %s): it is %s, %s", UploadKind, upload.APIVersion, upload.Kind)
	}
	for i, part := range upload.Parts {
		if len(part) > MaxSize {
			return status.TooLarge("parts[%d] has %d bytes, limit is %d", i, len(part), MaxSize)
		}
	}
	for _, part := range upload.Parts {
		switch _, err := w.Parts.Put(w.c.User.GetName(), part); {
		case errors.Is(err, ErrUploadsFull):
			return status.Unavailable(err.Error())
		case err != nil:
			return err
		}
	}
	w.c.Sent = true
	return w.c.WriteJSON(f, http.StatusCreated, status.Success(http.StatusCreated))
}

// lacksParts returns the error for a push whose parts must be uploaded first.
func lacksParts(missing []metav1.StatusCause) error {
	return status.PartsMissing(schema.GroupKind{Group: Group, Kind: Kind}, missing, fmt.Sprintf(
		"%d parts of the files are not here: upload them to /apis/%s/%s/%s/%s, and push again", len(missing), Group, Version, Plural, Parts))
}

// dropParts deletes the uploaded parts of the pushed policy, which the log has now.
func (w *push) dropParts() {
	if w.Parts == nil {
		return
	}
	var all []policies.Digest
	for _, f := range w.asked.Spec.Files {
		for _, part := range f.Parts {
			if d, err := policies.ParseDigest(part); err == nil {
				all = append(all, d)
			}
		}
	}
	w.Parts.Drop(all)
}

// answerPush answers with the pushed policy. Files that were sent as parts are not written in full, because they may be
// very large.
func (w *push) answerPush(f negotiate.Format, code int, answer *Policy) error {
	for _, file := range w.asked.Spec.Files {
		if len(file.Parts) > 0 {
			brief := *answer
			brief.Spec.Files = w.asked.Spec.Files
			answer = &brief
			break
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return w.c.WriteBody(f, code, text)
}
