package activation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/parts"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy/bundles"
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
		if len(part) > parts.MaxSize {
			return status.TooLarge("parts[%d] has %d bytes, limit is %d", i, len(part), parts.MaxSize)
		}
	}
	for _, part := range upload.Parts {
		switch _, err := w.Parts.Put(part); {
		case errors.Is(err, parts.ErrFull):
			return status.Unavailable(err.Error())
		case err != nil:
			return err
		}
	}
	w.c.Sent = true
	return w.c.WriteJSON(f, http.StatusCreated, status.Success(http.StatusCreated))
}

// sourceOf returns the source of a pushed policy. Its parts were uploaded, or are in the log; an error names the parts
// that are in neither.
func (w *push) sourceOf(ctx context.Context) (*bundles.Source, error) {
	source := &bundles.Source{Package: w.asked.Spec.Package}
	var missing []metav1.StatusCause
	have, size := map[string][]byte{}, 0
	for i, f := range w.asked.Spec.Files {
		contents := [][]byte{[]byte(f.Data)}
		size += len(f.Data)
		for j, digest := range f.Parts {
			part, known := have[digest]
			if !known {
				var err error
				if part, err = w.part(ctx, digest); err != nil {
					return nil, err
				}
				have[digest] = part
			}
			if part == nil {
				at := field.NewPath("spec", "files").Index(i).Child("parts").Index(j)
				missing = append(missing, metav1.StatusCause{Type: metav1.CauseTypeFieldValueNotFound, Field: at.String(), Message: digest})
			}
			// Check before copying: a small request can name one part many times.
			if size += len(part); size > bundles.MaxBytes {
				return nil, status.TooLarge("the files have more than %d MiB", bundles.MaxBytes>>20)
			}
			contents = append(contents, part)
		}
		if len(missing) == 0 { // otherwise the source is not used
			source.Files = append(source.Files, bundles.File{Path: f.Path, Data: slices.Concat(contents...)})
		}
	}
	if len(missing) > 0 {
		return nil, lacksParts(missing)
	}
	return source, nil
}

// part returns a part of a policy by its digest; nil if the server does not have it.
func (w *push) part(ctx context.Context, digest string) ([]byte, error) {
	d, err := policies.ParseDigest(digest)
	if err != nil {
		return nil, status.BadRequestf("spec.files: %v", err)
	}
	if w.Parts != nil {
		if data, ok := w.Parts.Get(d); ok {
			return data, nil
		}
	}
	return w.c.Tip.Policies.Chunk(ctx, w.Log, d)
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
