package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/projections/policies"
)

// takesParts reports whether the request uploads parts of a policy.
func (r *Request) takesParts() bool { return r.law && r.info.Name == activation.Parts }

// takeParts keeps the parts that a request uploads, until a policy is pushed that consists of
// them.
func (p *Pipeline) takeParts(r *Request) error {
	f, err := negotiate.Untyped(r.http)
	if err != nil {
		return err
	}
	raw, err := readLimited(r.http)
	if err != nil {
		return err
	}
	var upload activation.Upload
	strict, err := kjson.UnmarshalStrict(raw, &upload)
	if err = errors.Join(append([]error{err}, strict...)...); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", activation.UploadKind, activation.Version, activation.UploadKind, err))
	}
	if upload.Kind != activation.UploadKind || upload.APIVersion != activation.Group+"/"+activation.Version {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): it is %s, %s", activation.UploadKind, upload.APIVersion, upload.Kind))
	}
	for i, part := range upload.Parts {
		if len(part) > parts.MaxSize {
			return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("parts[%d] has %d bytes, limit is %d", i, len(part), parts.MaxSize))
		}
	}
	for _, part := range upload.Parts {
		switch _, err := p.parts.Put(part); {
		case errors.Is(err, parts.ErrFull):
			return status.Unavailable(err.Error())
		case err != nil:
			return err
		}
	}
	r.sent = true
	return p.writeJSON(r, f, http.StatusCreated, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// sourceOf puts together the source of a policy that is pushed. Parts are looked for in the log
// and among those that were uploaded; an error names those that are in neither.
func (p *Pipeline) sourceOf(ctx context.Context, r *Request) (*bundles.Source, error) {
	source := &bundles.Source{Package: r.asked.Spec.Package}
	var missing []metav1.StatusCause
	have, size := map[string][]byte{}, 0
	for i, f := range r.asked.Spec.Files {
		contents := [][]byte{[]byte(f.Data)}
		size += len(f.Data)
		for j, digest := range f.Parts {
			part, known := have[digest]
			if !known {
				var err error
				if part, err = p.part(ctx, r, digest); err != nil {
					return nil, err
				}
				have[digest] = part
			}
			if part == nil {
				at := field.NewPath("spec", "files").Index(i).Child("parts").Index(j)
				missing = append(missing, metav1.StatusCause{Type: metav1.CauseTypeFieldValueNotFound, Field: at.String(), Message: digest})
			}
			// Before anything is copied: a small request can name one part many times.
			if size += len(part); size > bundles.MaxBytes {
				return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the files have more than %d MiB", bundles.MaxBytes>>20))
			}
			contents = append(contents, part)
		}
		if len(missing) == 0 { // else there is no use for it
			source.Files = append(source.Files, bundles.File{Path: f.Path, Data: slices.Concat(contents...)})
		}
	}
	if len(missing) > 0 {
		return nil, lacksParts(missing)
	}
	return source, nil
}

// part returns a part of a policy by its digest; nil if the server does not have it.
func (p *Pipeline) part(ctx context.Context, r *Request, digest string) ([]byte, error) {
	d, err := policies.ParseDigest(digest)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.files: %v", err))
	}
	if p.parts != nil {
		if data, ok := p.parts.Get(d); ok {
			return data, nil
		}
	}
	return r.tip.Policies.Chunk(ctx, p.log, d)
}

// lacksParts is the answer to a push whose parts have to be uploaded first.
func lacksParts(missing []metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%d parts of the files are not here: upload them to /apis/%s/%s/%s/%s, and push again", len(missing), activation.Group, activation.Version, activation.Plural, activation.Parts),
		Details: &metav1.StatusDetails{Group: activation.Group, Kind: activation.Kind, Causes: missing},
	}}
}

// dropParts forgets the uploaded parts of a policy that is in force: the log has them.
func (p *Pipeline) dropParts(r *Request) {
	if p.parts == nil {
		return
	}
	var all []policies.Digest
	for _, f := range r.asked.Spec.Files {
		for _, part := range f.Parts {
			if d, err := policies.ParseDigest(part); err == nil {
				all = append(all, d)
			}
		}
	}
	p.parts.Drop(all)
}

// answerPush writes the policy that was pushed: its files as they were sent, for one that was sent in parts
// may be larger than anybody wants to read.
func (p *Pipeline) answerPush(r *Request, f negotiate.Format, code int, answer *activation.Policy) error {
	for _, file := range r.asked.Spec.Files {
		if len(file.Parts) > 0 {
			brief := *answer
			brief.Spec.Files = r.asked.Spec.Files
			answer = &brief
			break
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, code, text)
}
