package core

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/objects"
)

// answer is the last stage of all that does not write.
func (p *Pipeline) answer(ctx context.Context, r *Request) error {
	if r.warnings = nil; r.kind != nil {
		r.warnDeprecated(r.kind)
		if _, err := r.format(); err != nil {
			return err // before anything is looked at
		}
		if err := p.warnPast(ctx, r); err != nil {
			return err
		}
	}
	switch {
	case !r.info.IsResourceRequest:
		return p.answerPath(r)
	case r.isChanges():
		return p.answerChanges(ctx, r)
	case r.law:
		return p.answerPolicies(ctx, r)
	case r.explains:
		return p.answerExplanation(ctx, r)
	case r.review != nil:
		return p.answerReview(ctx, r)
	case r.issues:
		return p.issue(ctx, r)
	case r.question != nil:
		return p.answerQuestion(ctx, r)
	case r.rendered != nil && r.info.Verb == "get":
		return p.getRendered(ctx, r)
	case r.rendered != nil && r.info.Verb == "list":
		return p.listRendered(ctx, r)
	case r.info.Verb == "get":
		return p.get(ctx, r)
	case r.info.Verb == "list":
		return p.list(ctx, r)
	case r.ofCollection():
		return p.deleteCollection(ctx, r)
	default:
		return p.watch(ctx, r)
	}
}

// maxUnconfirmed is how long a replica answers from memory without having heard from
// the log.
const maxUnconfirmed = 30 * time.Second

// see pins the tip that a read is answered from: for no resourceVersion one that is
// confirmed to be current, for "0" any, else one that is not older. If another policy
// is in force there, the request goes back to be authorized by it.
func (p *Pipeline) see(ctx context.Context, r *Request, resourceVersion string) error {
	if r.past != nil {
		return p.seePast(ctx, r, resourceVersion)
	}
	tip := r.tip
	var err error
	switch resourceVersion {
	case "":
		if !r.confirmed {
			tip, err = p.committer.Confirm(ctx)
		}
	case "0":
		if p.committer.Unconfirmed() > maxUnconfirmed {
			tip, err = p.committer.Confirm(ctx)
		}
	default:
		var revision uint64
		if revision, err = queryRevision(resourceVersion); err != nil {
			return err
		}
		if revision > tip.Revision() {
			if tip, err = p.committer.Confirm(ctx); err == nil && revision > tip.Revision() {
				return past.NotYet(revision, tip.Revision())
			}
		}
		if err == nil {
			err = p.checkLost(ctx, tip, revision)
		}
	}
	if err != nil {
		return err
	}
	return r.pin(tip)
}

// pin replaces the tip by a newer one.
func (r *Request) pin(tip *commit.Tip) error {
	if tip.PolicyRevision() != r.tip.PolicyRevision() {
		return &again{stage: "impersonation", tip: tip}
	}
	r.tip = tip
	return nil
}

// getVersion is the resourceVersion that a get asks for, and whether it is to be of that very one,
// which upstream knows of lists alone.
func (r *Request) getVersion() (version string, exact bool, err error) {
	if r.http.URL.RawQuery == "" {
		return "", false, nil
	}
	query := r.http.URL.Query()
	export, asked := false, query["export"]
	if err := runtime.Convert_Slice_string_To_bool(&asked, &export, nil); err != nil {
		return "", false, apierrors.NewBadRequest(fmt.Sprintf("the export parameter cannot be parsed: %v", err))
	}
	if export {
		return "", false, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	o := internalversion.ListOptions{ResourceVersion: query.Get("resourceVersion"), ResourceVersionMatch: metav1.ResourceVersionMatch(query.Get("resourceVersionMatch"))}
	if errs := internalvalidation.ValidateListOptions(&o, true); len(errs) > 0 {
		return "", false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "GetOptions"}, "", errs)
	}
	return o.ResourceVersion, exactly(&o), nil
}

func (p *Pipeline) get(ctx context.Context, r *Request) error {
	version, exact, err := r.getVersion()
	if err != nil {
		return err
	}
	var o *objects.Object
	if exact || r.past != nil {
		o, err = p.objectAt(ctx, r, version, exact)
	} else if err = p.see(ctx, r, version); err == nil {
		o = r.tip.Objects.Get(r.resource(), r.key.Namespace, r.key.Name)
	}
	if err != nil {
		return err
	}
	if r.sent {
		return nil
	}
	if o == nil {
		return p.notFound(ctx, r)
	}
	return p.answerObject(r, 200, o.JSON)
}
