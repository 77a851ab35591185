"""The addresses of the project."""

from django.contrib import admin
from django.urls import path

from tests.contrib.django.project.shop.views import order

urlpatterns = [path("admin/", admin.site.urls), path("order/<str:queue>/", order)]
