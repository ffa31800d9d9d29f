package engine

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// encoder turns one Go value into a term; nil stands for an absent key.
type encoder func(reflect.Value) *ast.Term

var encoders sync.Map // reflect.Type -> encoder

// encode gives the term that the value's JSON would parse to, with two differences that the contract wants:
// nil maps and slices are empty, never null, and null elements are left out.
func encode[T any](v *T) *ast.Term {
	if v == nil {
		return nil
	}
	return encoderOf(reflect.TypeFor[T]())(reflect.ValueOf(v).Elem())
}

// encoderOf plans a type once, so that encoding itself looks no names and tags up.
func encoderOf(t reflect.Type) encoder {
	if found, ok := encoders.Load(t); ok {
		return found.(encoder)
	}
	planned, _ := encoders.LoadOrStore(t, plan(t))
	return planned.(encoder)
}

func plan(t reflect.Type) encoder {
	switch t.Kind() {
	case reflect.Pointer:
		return planPointer(t)
	case reflect.Struct:
		return planStruct(t)
	case reflect.Map:
		return planMap(t)
	case reflect.Slice:
		return planSlice(t)
	case reflect.Interface:
		return func(v reflect.Value) *ast.Term { return ast.NewTerm(ast.MustInterfaceToValue(v.Interface())) }
	case reflect.String:
		return func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.String()) }
	case reflect.Bool:
		return func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.Bool()) }
	case reflect.Int, reflect.Int32, reflect.Int64:
		return func(v reflect.Value) *ast.Term { return ast.InternedTerm(int(v.Int())) }
	case reflect.Float64:
		return func(v reflect.Value) *ast.Term { return number(v.Float()) }
	default:
		panic(fmt.Sprintf("a policy cannot be given a %s", t))
	}
}

// number leaves out what JSON has no number for: to a policy that is unknown.
func number(f float64) *ast.Term {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return ast.NewTerm(ast.Number(strconv.FormatFloat(f, 'f', -1, 64)))
}

func planPointer(t reflect.Type) encoder {
	elem := encoderOf(t.Elem())
	return func(v reflect.Value) *ast.Term {
		if v.IsNil() {
			return nil
		}
		return elem(v.Elem())
	}
}

type field struct {
	index     int
	key       *ast.Term
	omitEmpty bool
	encode    encoder
	// inline holds the fields of an embedded struct.
	inline []field
}

func planStruct(t reflect.Type) encoder {
	fields := fieldsOf(t)
	return func(v reflect.Value) *ast.Term {
		return ast.ObjectTerm(appendFields(make([][2]*ast.Term, 0, len(fields)+4), fields, v)...)
	}
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			fields = append(fields, field{index: i, inline: fieldsOf(f.Type)})
			continue
		}
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "" || tag == "-" {
			continue
		}
		fields = append(fields, field{index: i, key: ast.StringTerm(tag), omitEmpty: options == "omitempty", encode: encoderOf(f.Type)})
	}
	return fields
}

func appendFields(pairs [][2]*ast.Term, fields []field, v reflect.Value) [][2]*ast.Term {
	for _, f := range fields {
		value := v.Field(f.index)
		if f.inline != nil {
			pairs = appendFields(pairs, f.inline, value)
			continue
		}
		if f.omitEmpty && isEmpty(value) {
			continue
		}
		if term := f.encode(value); term != nil {
			pairs = append(pairs, [2]*ast.Term{f.key, term})
		}
	}
	return pairs
}

// isEmpty is encoding/json's notion of omitempty.
func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Map || v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}

func planMap(t reflect.Type) encoder {
	elem := encoderOf(t.Elem())
	return func(v reflect.Value) *ast.Term {
		pairs := make([][2]*ast.Term, 0, v.Len())
		for it := v.MapRange(); it.Next(); {
			if term := elem(it.Value()); term != nil {
				pairs = append(pairs, [2]*ast.Term{ast.InternedTerm(it.Key().String()), term})
			}
		}
		return ast.ObjectTerm(pairs...)
	}
}

func planSlice(t reflect.Type) encoder {
	elem := encoderOf(t.Elem())
	return func(v reflect.Value) *ast.Term {
		terms := make([]*ast.Term, 0, v.Len())
		for i := range v.Len() {
			if term := elem(v.Index(i)); term != nil {
				terms = append(terms, term)
			}
		}
		return ast.ArrayTerm(terms...)
	}
}
