package garbage

import (
	"context"

	"stele.dev/stele/core/controllers/clients"
)

func Run(ctx context.Context, set *clients.Set) error { <-ctx.Done(); return ctx.Err() }
