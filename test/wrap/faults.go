package wrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrCrash is what a write returns that Faults was told to fail.
var ErrCrash = errors.New("the process was killed here")

// Faults is a client that remembers its writes and fails one of them. It is for one goroutine.
type Faults struct {
	client.Client
	// FailAt is the number of the write, from 1, that fails; 0 for none.
	FailAt int
	// Lost: the failing write is carried out all the same and only its answer is lost.
	Lost bool
	// Writes so far, such as "create Revision db-1234567890".
	Writes []string
}

// do carries a write out, unless it is the one that fails. Every later write fails too: the process is gone.
func (f *Faults) do(verb, kind, name string, write func() error) error {
	n := len(f.Writes) + 1
	if f.FailAt > 0 && n > f.FailAt {
		return ErrCrash
	}
	f.Writes = append(f.Writes, fmt.Sprintf("%s %s %s", verb, kind, name))
	if n != f.FailAt {
		return write()
	}
	if f.Lost {
		if err := write(); err != nil {
			return err
		}
	}
	return ErrCrash
}

func kindOf(o any) string {
	t := fmt.Sprintf("%T", o)
	return strings.TrimSuffix(t[strings.LastIndex(t, ".")+1:], "ApplyConfiguration")
}

// Create writes.
func (f *Faults) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return f.do("create", kindOf(o), o.GetName(), func() error { return f.Client.Create(ctx, o, opts...) })
}

// Update writes.
func (f *Faults) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return f.do("update", kindOf(o), o.GetName(), func() error { return f.Client.Update(ctx, o, opts...) })
}

// Patch writes.
func (f *Faults) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return f.do("patch", kindOf(o), o.GetName(), func() error { return f.Client.Patch(ctx, o, p, opts...) })
}

// Delete writes.
func (f *Faults) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return f.do("delete", kindOf(o), o.GetName(), func() error { return f.Client.Delete(ctx, o, opts...) })
}

// Apply writes.
func (f *Faults) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return f.do("apply", kindOf(o), "", func() error { return f.Client.Apply(ctx, o, opts...) })
}

// Status writes statuses through the same faults.
func (f *Faults) Status() client.SubResourceWriter {
	return &status{SubResourceWriter: f.Client.Status(), f: f}
}

type status struct {
	client.SubResourceWriter
	f *Faults
}

// Update writes.
func (s *status) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.f.do("update-status", kindOf(o), o.GetName(), func() error { return s.SubResourceWriter.Update(ctx, o, opts...) })
}

// Patch writes.
func (s *status) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.f.do("patch-status", kindOf(o), o.GetName(), func() error { return s.SubResourceWriter.Patch(ctx, o, p, opts...) })
}
