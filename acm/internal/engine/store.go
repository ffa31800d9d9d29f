package engine

import (
	"context"
	"errors"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

const factsRoot = "facts"

// store answers data.<path> from the bundle's own data and, below data.facts, from the view that the transaction
// carries. It is read only: nothing that happens while one evaluation runs can change what it sees.
type store struct {
	data *ast.Term
}

// transaction binds one evaluation to one view.
type transaction struct{ facts *view }

// ID is the same for all: the store keeps no state by transaction.
func (transaction) ID() uint64 { return 1 }

var errReadOnly = errors.New("policies are given their data read only")

// NewTransaction gives one without facts; evaluations bring their own.
func (s *store) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return transaction{}, nil
}

// Read gives an ast.Value, or a not-found error.
func (s *store) Read(_ context.Context, txn storage.Transaction, path storage.Path) (any, error) {
	t, _ := txn.(transaction)
	var found *ast.Term
	switch {
	case len(path) == 0:
		found = s.root(t.facts)
	case path[0] == factsRoot:
		if t.facts != nil {
			found = t.facts.read(path[1:])
		}
	default:
		found = find(s.data, path)
	}
	if found == nil {
		return nil, errNotFound
	}
	return found.Value, nil
}

// errNotFound is shared: a missing fact is an ordinary answer and must cost nothing.
var errNotFound = &storage.Error{Code: storage.NotFoundErr, Message: "document not found"}

func (s *store) root(v *view) *ast.Term {
	own, ok := s.data.Value.(ast.Object)
	if !ok || v == nil {
		return s.data
	}
	whole := ast.NewObject([2]*ast.Term{ast.StringTerm(factsRoot), ast.NewTerm(v.object())})
	own.Foreach(whole.Insert)
	return ast.NewTerm(whole)
}

func elementAt(list *ast.Array, key string) *ast.Term {
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i >= list.Len() {
		return nil
	}
	return list.Elem(i)
}

// Write refuses.
func (s *store) Write(context.Context, storage.Transaction, storage.PatchOp, storage.Path, any) error {
	return errReadOnly
}

// Commit does nothing.
func (s *store) Commit(context.Context, storage.Transaction) error { return nil }

// Abort does nothing.
func (s *store) Abort(context.Context, storage.Transaction) {}

// Truncate refuses.
func (s *store) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errReadOnly
}

// Register refuses: what never changes triggers nothing.
func (s *store) Register(context.Context, storage.Transaction, storage.TriggerConfig) (storage.TriggerHandle, error) {
	return nil, errReadOnly
}

// ListPolicies gives none; the compiler holds them. An error here would fail every preparation.
func (s *store) ListPolicies(context.Context, storage.Transaction) ([]string, error) { return nil, nil }

// GetPolicy finds none.
func (s *store) GetPolicy(context.Context, storage.Transaction, string) ([]byte, error) {
	return nil, errNotFound
}

// UpsertPolicy refuses.
func (s *store) UpsertPolicy(context.Context, storage.Transaction, string, []byte) error {
	return errReadOnly
}

// DeletePolicy refuses.
func (s *store) DeletePolicy(context.Context, storage.Transaction, string) error { return errReadOnly }
